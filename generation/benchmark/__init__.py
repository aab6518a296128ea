"""`manage.py benchmark`: how fast this machine answers, beside other ways to run the same model on it.

Needs no database, Redis or site. Only what runs a model with weights imports torch.
"""
