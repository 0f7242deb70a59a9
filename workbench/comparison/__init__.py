"""Aligning and measuring two captures. Never imports torch, transformers or vllm."""
