"""The intermediate representation: nodes, traversal, text, verification, interpretation, passes."""
