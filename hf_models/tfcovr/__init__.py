"""TF-CoVR: AIM video encoders, their adapters, and composed retrieval on top of them."""
