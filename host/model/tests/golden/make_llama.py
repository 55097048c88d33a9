"""Makes tiny-llama.gguf and tiny-llama.json: a random llama checkpoint and what transformers
computes with it. Needs: pip install torch transformers accelerate gguf numpy (made with 2.15, 5.24, 0.19).

The weights are rounded to 16 bits before anything is computed, so that the file holds exactly
what was computed with. The file is also loaded by transformers' own GGUF reader as a check.
"""

import json
import pathlib

import gguf
import numpy
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
HIDDEN, LAYERS, HEADS, KEY_HEADS, FEED_FORWARD, CONTEXT = 32, 2, 4, 2, 64, 256
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unused>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "i n", "Ġ Ġ", "a t"]


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + number) for number, byte in enumerate(rest)})
    return [table[byte] for byte in range(256)]


def rounded(tensor):
    return tensor.detach().to(torch.float16).to(torch.float32)


def permuted(weight, heads):
    """GGUF stores the rows of queries and keys so that rotated pairs lie side by side."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main():
    tokens = SPECIAL + byte_characters() + [merge.replace(" ", "") for merge in MERGES]
    config = LlamaConfig(
        vocab_size=len(tokens), hidden_size=HIDDEN, intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS,
        max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="eager", bos_token_id=1, eos_token_id=2,
    )
    generator = torch.Generator().manual_seed(20261130)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            # Large enough that attention looks somewhere and the logits differ.
            parameter.copy_(rounded(1 + 0.2 * noise if "norm" in name else 0.25 * noise))

    path = HERE / "tiny-llama.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for layer in range(LAYERS):
        for theirs, ours in {
            "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        }.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    for name, parameter in model.named_parameters():
        weight = parameter.detach()
        if "q_proj" in name:
            weight = permuted(weight, HEADS)
        if "k_proj" in name:
            weight = permuted(weight, KEY_HEADS)
        kind = numpy.float32 if "norm" in name else numpy.float16
        writer.add_tensor(names[name], weight.numpy().astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    ids = [1] + torch.randint(4, len(tokens), (39,), generator=generator).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        again = AutoModelForCausalLM.from_pretrained(
            HERE, gguf_file=path.name, attn_implementation="eager", dtype=torch.float32
        ).eval()
        difference = (again(torch.tensor([ids])).logits[0] - logits).abs().max().item()
    print("transformers' own reading of the file differs by", difference)
    assert difference < 1e-5
    greedy = list(ids[:8])
    with torch.no_grad():
        for _ in range(12):
            greedy.append(model(torch.tensor([greedy])).logits[0, -1].argmax().item())
    logits.numpy().astype("<f4").tofile(HERE / "tiny-llama.logits")
    golden = {"ids": ids, "greedy": greedy}
    (HERE / "tiny-llama.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
