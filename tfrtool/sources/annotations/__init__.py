"""Annotated images: COCO, Pascal VOC, YOLO and tables of boxes."""
