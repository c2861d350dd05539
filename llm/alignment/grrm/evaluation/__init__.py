"""Quality of translations and of judges: text metrics, and the evaluation of a policy. Imports without paddle."""
