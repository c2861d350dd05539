"""The kinds of phrases; each module offers functions `Draws -> Phrase`."""
