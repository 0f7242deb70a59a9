"""The notebook widget as a person meets it: a real JupyterLab in a real browser."""
