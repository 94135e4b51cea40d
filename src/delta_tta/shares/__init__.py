"""How the share of the stream's statistics is chosen, without labels, for layers that mix them with the source's."""
