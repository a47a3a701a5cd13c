"""Where images are kept between epochs."""
