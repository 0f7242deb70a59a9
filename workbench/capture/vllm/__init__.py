"""Recording inside vLLM. Every vLLM internal that the product relies on is named in this folder alone."""
