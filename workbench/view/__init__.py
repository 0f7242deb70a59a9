"""The one view-model behind every face. Draws nothing; never imports textual or torch."""
