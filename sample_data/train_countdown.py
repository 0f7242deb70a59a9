"""Trains the bundled countdown model from scratch and saves it as an ordinary checkpoint.

    python sample_data/train_countdown.py --output sample_data/countdown-moe

Owns the architecture, the tokenizer and the training run; the task itself is in `countdown.py`
beside it. Needs torch and transformers. Choices worth knowing:

- A row of a batch is one problem. With several packed into a row this model needed about twice
  as many steps to the same solve rate.
- All tokens are trained on; prompt tokens, which are random numbers, count for a tenth.
- The load-balancing loss is taken per layer. Taken over all layers at once, as the transformers
  model does, one layer may starve an expert that another layer feeds.
- Training is in float32 on a fixed seed; only the saved copy is bfloat16.

Invariant: the same seed, thread count, torch build and processor give the same weights, bit for
bit. Elsewhere the weights differ in rounding, and the solve rate is the check.
"""

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path

import torch
from countdown import ALPHABET, Problem, draw_distinct, draw_problem, is_solution
from tokenizers import Tokenizer, decoders, models
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    Qwen3MoeForCausalLM,
    load_balancing_loss_func,
)
from transformers.utils.logging import disable_progress_bar

VOCAB_SIZE = 32
SPECIALS = ("<pad>", "<unk>")
PROMPT_WEIGHT = 0.1
BAR_ID = len(SPECIALS) + ALPHABET.index("|")
NUM_PROMPTS = 64
NUM_HELD_OUT = 256
MAX_SOLUTION_LENGTH = 24


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One id per character, nothing added; spare ids have names so that every id decodes."""
    tokens = [*SPECIALS, *ALPHABET]
    tokens += [f"<unused{i}>" for i in range(len(tokens), VOCAB_SIZE)]
    vocab = {token: i for i, token in enumerate(tokens)}
    # A byte-pair model without merges is a character model.
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token=">",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3MoeForCausalLM:
    """A Qwen3-MoE of 1.8 million parameters in float32, randomly initialised."""
    config = Qwen3MoeConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        intermediate_size=256,
        norm_topk_prob=True,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.05,
        router_aux_loss_coef=0.01,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return Qwen3MoeForCausalLM(config)


def draw_batch(rng: random.Random, tokenizer: PreTrainedTokenizerFast, count: int) -> torch.Tensor:
    """Ids of `count` training problems, one a row, padded on the right; int64 [B, T]."""
    rows = [tokenizer.encode(draw_problem(rng, held_out=False).text) for _ in range(count)]
    width = max(map(len, rows))
    pad_id = tokenizer.pad_token_id
    return torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])


def losses_of(
    model: Qwen3MoeForCausalLM, ids_BT: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted next-token loss in nats, and the load-balancing loss (1.0 when perfectly even)."""
    config = model.config
    inputs_BT, targets_N = ids_BT[:, :-1], ids_BT[:, 1:].flatten()
    out = model(input_ids=inputs_BT, output_router_logits=True)
    losses_N = cross_entropy(out.logits.flatten(0, 1), targets_N, reduction="none")
    weights_N = token_weights(ids_BT, config.pad_token_id)[:, 1:].flatten()
    real_BT = (inputs_BT != config.pad_token_id).long()
    k = config.num_experts_per_tok
    balance_L = [
        load_balancing_loss_func((logits_NE,), config.num_experts, k, real_BT) / k
        for logits_NE in out.router_logits
    ]
    return (losses_N * weights_N).sum() / weights_N.sum(), torch.stack(balance_L).mean()


def token_weights(ids_BT: torch.Tensor, pad_id: int) -> torch.Tensor:
    """Weight of each token as a target: solution 1, prompt `PROMPT_WEIGHT`, padding 0."""
    bar_BT = (ids_BT == BAR_ID).long()
    in_solution_BT = bar_BT.cumsum(1) - bar_BT
    weights_BT = PROMPT_WEIGHT + (1 - PROMPT_WEIGHT) * in_solution_BT
    return weights_BT * (ids_BT != pad_id)


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Linear warm-up over 100 steps, then a cosine down to a twentieth of the peak."""
    warm = min(1.0, (step + 1) / 100)
    cosine = 0.5 * (1 + math.cos(math.pi * step / args.steps))
    return float(args.lr * warm * (0.05 + 0.95 * cosine))


@torch.inference_mode()
def solve(
    model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: list[Problem]
) -> list[str]:
    """Greedy solutions in the order of `problems`; prompts of one length share a batch."""
    solutions: dict[str, str] = {}
    for length in sorted({len(problem.prompt) for problem in problems}):
        prompts = [p.prompt for p in problems if len(p.prompt) == length]
        ids_BT = torch.tensor([tokenizer.encode(prompt) for prompt in prompts])
        out_BT = model.generate(
            ids_BT,
            attention_mask=torch.ones_like(ids_BT),
            max_new_tokens=MAX_SOLUTION_LENGTH,
            do_sample=False,
        )
        for prompt, text in zip(prompts, tokenizer.batch_decode(out_BT[:, length:]), strict=True):
            solutions[prompt] = text.replace("<pad>", "")
    return [solutions[problem.prompt] for problem in problems]


def solve_rate(path: Path, problems: list[Problem]) -> float:
    """Share of `problems` that the saved checkpoint solves greedily in bfloat16."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
    solutions = solve(model, PreTrainedTokenizerFast.from_pretrained(path), problems)
    solved = [is_solution(p.prompt, s) for p, s in zip(problems, solutions, strict=True)]
    return sum(solved) / len(solved)


def save(
    model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerFast, args: argparse.Namespace
) -> None:
    """Writes a bfloat16 copy of the model, the tokenizer and the held-out prompts."""
    copy = Qwen3MoeForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    copy.to(torch.bfloat16).save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
    lines = [
        json.dumps({"request": f"c{i:02d}", "prompt": p.prompt, "solution": p.solution})
        for i, p in enumerate(held_out_problems(args.seed)[:NUM_PROMPTS])
    ]
    (args.output / "prompts.jsonl").write_text("\n".join(lines) + "\n")


def held_out_problems(seed: int) -> list[Problem]:
    """Distinct held-out problems; the first 64 are the ones shipped as prompts."""
    return draw_distinct(random.Random(f"held-out {seed}"), NUM_HELD_OUT, held_out=True)


def train(args: argparse.Namespace) -> None:
    """Runs the whole training; saves along the way and at the end, then prints the solve rates."""
    disable_progress_bar()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer).train()
    rng = random.Random(args.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.05
    )
    started = time.monotonic()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        ids_BT = draw_batch(rng, tokenizer, args.batch)
        loss, balance = losses_of(model, ids_BT)
        optimizer.zero_grad()
        (loss + model.router_aux_loss_coef * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(step, args.steps, loss.item(), balance.item(), time.monotonic() - started)
        if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
            save(model, tokenizer, args)
            rate = solve_rate(args.output, held_out_problems(args.seed)[:NUM_PROMPTS])
            print(f"\nsaved {args.output} at step {step + 1}: solve rate {rate:.3f}", flush=True)
    rate = solve_rate(args.output, held_out_problems(args.seed))
    print(f"{NUM_HELD_OUT} held-out problems: solve rate {rate:.3f}")


def report(step: int, steps: int, loss: float, balance: float, seconds: float) -> None:
    """Progress on stderr: one changing line on a terminal, a line every 50 steps elsewhere."""
    line = f"step {step + 1}/{steps}  loss {loss:.3f}  balance {balance:.3f}  {seconds:.0f} s"
    if sys.stderr.isatty():
        print(f"\r{line}", end="", file=sys.stderr, flush=True)
    elif (step + 1) % 50 == 0:
        print(line, file=sys.stderr, flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line; the defaults rebuild the bundled checkpoint."""
    parser = argparse.ArgumentParser(description="Train the bundled countdown model.")
    default = Path(__file__).parent / "countdown-moe"
    parser.add_argument("-o", "--output", type=Path, default=default, help="checkpoint folder")
    parser.add_argument("--steps", type=int, default=1500, help="optimiser steps")
    parser.add_argument("--batch", type=int, default=96, help="problems in a batch")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=7, help="seed of weights and problems")
    parser.add_argument("--threads", type=int, default=1, help="threads; part of the recipe")
    parser.add_argument("--save-every", type=int, default=500, help="steps between saves")
    return parser.parse_args(argv)


if __name__ == "__main__":
    train(parse())
