"""How fast training, scoring and sampling are, beside other implementations and busy neighbours."""
