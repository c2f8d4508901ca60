"""Are two things that should be the same model the same?"""
