from hypothesis import settings

settings.register_profile("outlive", deadline=None)  # a busy machine is no failure
settings.load_profile("outlive")
