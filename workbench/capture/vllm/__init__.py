"""Recording inside vLLM. Every vLLM internal that kldive needs is named in this folder alone."""
