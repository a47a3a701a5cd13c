"""Objects in images: their boxes, outlines and key points, and how records hold them."""
