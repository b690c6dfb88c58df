"""The console of this room: pages about messages and providers, and what its admin is made of."""
