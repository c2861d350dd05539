"""How good translations are: text metrics and the evaluation of a policy. Imports without paddle."""
