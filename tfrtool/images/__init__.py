"""One image: probe, audit, normalise. The only home of Pillow."""
