"""Reports of a comparison for people. Never imports torch, transformers or vllm."""
