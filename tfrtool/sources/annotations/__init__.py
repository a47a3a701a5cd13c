"""Images whose objects are told beside them: COCO, Pascal VOC, YOLO, tables of boxes."""
