"""Moment retrieval in a corpus of videos: XML, ReLoCLNet and HERO (VERIFIED, section 4)."""
