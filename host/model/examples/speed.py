"""Tokens per second of PyTorch in eager mode on the CPU, for the models and loads of `speed.rs`.

    pip install torch transformers
    python speed.py 27m|135m THREADS
"""

import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

name, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
small = name == "27m"
config = LlamaConfig(
    vocab_size=4096 if small else 49152,
    hidden_size=512 if small else 576,
    intermediate_size=1344 if small else 1536,
    num_hidden_layers=8 if small else 30,
    num_attention_heads=8 if small else 9,
    num_key_value_heads=8 if small else 3,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=100000.0,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    attn_implementation="sdpa",
)
torch.manual_seed(1)
model = LlamaForCausalLM(config)
print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {threads} threads")


def ids(count):
    return torch.tensor([(at * 7919 + 13) % config.vocab_size for at in range(count)])


def sampling(size, steps=64):
    with torch.inference_mode():
        out = model(input_ids=ids(64)[None].repeat(size, 1), use_cache=True)
        token = torch.ones(size, 1, dtype=torch.long)
        start = time.perf_counter()
        for _ in range(steps):
            out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1].argmax(-1, keepdim=True)
        return steps * size / (time.perf_counter() - start)


def training(sequences=8, length=256, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.stack([ids(length + n)[n:] for n in range(sequences)])
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch, use_cache=False).loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return sequences * length / sorted(times)[len(times) // 2]


for size in (1, 8):
    print(f"sample_tokens_per_s batch {size}: {sampling(size):.1f}")
print(f"train_tokens_per_s {training():.1f}")
