"""TF-CoVR: composed retrieval of fine-grained sport actions."""
