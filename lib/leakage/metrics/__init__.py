"""How attacks and models are measured: what scores achieve, with intervals, and how far a reconstruction is off."""
