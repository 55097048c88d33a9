"""Speeds of PyTorch on the CPU (eager, f32), for the loads of `fulgurite bench policy|train`.

    pip install torch transformers
    python host/cli/bench/pytorch.py --model 27m --threads 2 --fulgurite target/release/fulgurite

Without `--fulgurite` only PyTorch is measured. With it both are measured in turns, each in a
process of its own, and the middle value of all rounds counts; a ratio above 1 says that Fulgurite
is faster. Run it on a machine that does nothing else: the load is printed before and after.

What is the same on both sides: shapes (random weights; speed does not depend on them), threads,
tokens, float32. Sampling: prompts of 16 tokens, then so many tokens at temperature 1.2 with keys
and values kept, each drawn from softmax(logits / temperature), with its log-probability. Prefill:
one prompt of 512 tokens, logits of its last position. Training: forward, cross-entropy of every
token but the first of each row, backward, clipping to norm 1, AdamW (PyTorch's fused one).
Adapters: rank 16 beside all seven matrices of each layer, everything else frozen.

PyTorch computes attention by `scaled_dot_product_attention`, transformers' default.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

# The shapes that `fulgurite bench` knows by name (host/cli/src/commands/bench_model.rs).
SHAPES = {
    "tiny": (260, 128, 384, 4, 4, 2),
    "27m": (8192, 512, 1408, 8, 8, 4),
    "135m": (49_152, 576, 1536, 30, 9, 3),
}
PROMPT, PREFILL, TEMPERATURE = 16, 512, 1.2
# Each in a process of its own, because a process has one peak of memory.
PARTS = ["policy", "lora", "full"]
SPEEDS = {
    "sample_tokens_per_s": "sampling, one reply",
    "sample_tokens_per_s_batch_8": "sampling, eight replies",
    "prefill_tokens_per_s": "prefill",
    "train_tokens_per_s": "training, all weights",
    "lora_tokens_per_s": "training, adapters",
}
OTHERS = {
    "peak_mib_lora": "peak memory with adapters, MiB",
    "peak_mib": "peak memory of all weights, MiB",
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=SHAPES, default="27m")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokens", type=int, default=128, help="of each sampled reply")
    parser.add_argument("--length", type=int, default=256, help="tokens of a training row")
    parser.add_argument("--rows", type=int, default=8, help="rows of a training step")
    parser.add_argument("--steps", type=int, default=3, help="measured training steps")
    parser.add_argument("--rank", type=int, default=16, help="width of the adapters")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--fulgurite", metavar="PATH", help="measure this program as well")
    parser.add_argument("--only", choices=PARTS, help="leave the others out")
    parser.add_argument("--json", action="store_true", help="print one flat object")
    # A round of PyTorch alone, in a process of its own.
    parser.add_argument("--round", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def build(asked):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(asked.threads)
    torch.manual_seed(1)
    vocabulary, hidden, feed_forward, layers, heads, key_heads = SHAPES[asked.model]
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=feed_forward,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            head_dim=hidden // heads,
            rms_norm_eps=1e-5,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )
    )


def ids(model, count, first=0):
    import torch

    vocabulary = model.config.vocab_size
    return torch.tensor([(at * 7919 + 13) % vocabulary for at in range(first, first + count)])


def sample(model, replies, tokens):
    """Tokens a second of so many replies at once, their prompts included."""
    import torch

    with torch.inference_mode():
        prompts = torch.stack([ids(model, PROMPT, 100 * reply) for reply in range(replies)])
        began = time.perf_counter()
        out = model(input_ids=prompts, use_cache=True, logits_to_keep=1)
        for number in range(tokens):
            scores = torch.log_softmax(out.logits[:, -1] / TEMPERATURE, dim=-1)
            token = torch.multinomial(scores.exp(), 1)
            scores.gather(1, token).tolist()
            if number + 1 < tokens:
                cache = out.past_key_values
                out = model(input_ids=token, past_key_values=cache, use_cache=True)
        return replies * tokens / (time.perf_counter() - began)


def prefill(model):
    import torch

    with torch.inference_mode():
        prompt = ids(model, PREFILL)[None]
        began = time.perf_counter()
        model(input_ids=prompt, use_cache=True, logits_to_keep=1)
        return PREFILL / (time.perf_counter() - began)


def train(model, asked):
    """Tokens a second of whole steps."""
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0, fused=True)
    batch = torch.stack([ids(model, asked.length, row) for row in range(asked.rows)])
    times = []
    for _ in range(asked.steps + 1):
        began = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        times.append(time.perf_counter() - began)
    # The first step pays for pages, buffers and the optimizer's moments.
    return asked.rows * asked.length / statistics.median(times[1:])


def adapt(model, rank):
    """Freezes the model and puts adapters beside all matrices of its layers."""
    import torch

    class Adapted(torch.nn.Module):
        def __init__(self, frozen):
            super().__init__()
            self.frozen = frozen
            self.a = torch.nn.Linear(frozen.in_features, rank, bias=False)
            self.b = torch.nn.Linear(rank, frozen.out_features, bias=False)
            torch.nn.init.zeros_(self.b.weight)

        def forward(self, rows):
            # alpha / rank, with alpha = 2 · rank
            return self.frozen(rows) + self.b(self.a(rows)) * 2.0

    model.requires_grad_(False)
    for layer in model.model.layers:
        for half in (layer.self_attn, layer.mlp):
            for name, module in list(half.named_children()):
                if isinstance(module, torch.nn.Linear):
                    setattr(half, name, Adapted(module))


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(asked):
    """One round of PyTorch."""
    model = build(asked)
    if asked.round == "policy":
        sample(model, 1, 4)
        return {
            "sample_tokens_per_s": sample(model, 1, asked.tokens),
            "sample_tokens_per_s_batch_8": sample(model, 8, asked.tokens),
            "prefill_tokens_per_s": prefill(model),
        }
    if asked.round == "lora":
        adapt(model, asked.rank)
        return {"lora_tokens_per_s": train(model, asked), "peak_mib_lora": peak_mib()}
    return {"train_tokens_per_s": train(model, asked), "peak_mib": peak_mib()}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}; its message is above")
    return json.loads(done.stdout)


def theirs(asked, part):
    names = ("model", "threads", "tokens", "length", "rows", "steps", "rank")
    flags = [f"--{name}={getattr(asked, name)}" for name in names]
    return run([sys.executable, __file__, f"--round={part}", *flags])


def ours(asked, part):
    if part == "policy":
        command, names = ["policy"], ["tokens"]
    else:
        command, names = ["train", f"--only={part}"], ["length", "rows", "steps", "rank"]
    flags = [f"--{name}={getattr(asked, name)}" for name in ["model", "threads", *names]]
    figures = run([asked.fulgurite, "bench", *command, "--json", "--quiet", *flags])
    if part == "policy":
        # That of both modes and of the comparison of log-probabilities together.
        del figures["peak_mib"]
    return figures


def main():
    asked = arguments()
    if asked.round:
        print(json.dumps(measure(asked)))
        return
    load = [os.getloadavg()[0]]
    rounds = {"pytorch": {}, "fulgurite": {}}

    def add(side, figures):
        for name, value in figures.items():
            if isinstance(value, (int, float)):
                rounds[side].setdefault(name, []).append(value)

    for _ in range(asked.rounds):
        for part in [asked.only] if asked.only else PARTS:
            if asked.fulgurite:
                add("fulgurite", ours(asked, part))
            add("pytorch", theirs(asked, part))
    load.append(os.getloadavg()[0])
    middle = {
        side: {name: statistics.median(values) for name, values in figures.items()}
        for side, figures in rounds.items()
    }
    pytorch, fulgurite = middle["pytorch"], middle["fulgurite"]
    ratios = {
        name: fulgurite[name] / pytorch[name] for name in SPEEDS if name in fulgurite and name in pytorch
    }
    if asked.json:
        conditions = {"model": asked.model, "threads": asked.threads, "load": load}
        figures = {f"{side}_{name}": value for side in middle for name, value in middle[side].items()}
        print(json.dumps(conditions | figures | {f"ratio_{n}": r for n, r in ratios.items()}))
        return
    print(f"{asked.model}, {asked.threads} threads, {asked.rounds} rounds; "
          f"load {load[0]:.1f} before and {load[1]:.1f} after")
    print(f"{'':32}{'fulgurite':>12}{'pytorch':>12}{'ratio':>8}")
    for name, words in (SPEEDS | OTHERS).items():
        if name not in pytorch:
            continue
        own = f"{fulgurite[name]:.1f}" if name in fulgurite else "-"
        ratio = f"{ratios[name]:.2f}" if name in ratios else ""
        print(f"{words:32}{own:>12}{pytorch[name]:>12.1f}{ratio:>8}")
    if "max_logprob_difference" in fulgurite:
        print(f"log-probabilities of sampling and training differ by at most "
              f"{fulgurite['max_logprob_difference']:.1e}")


if __name__ == "__main__":
    main()
