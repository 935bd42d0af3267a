"""DeepSeek-V4.1-Flash's decode layer by stages: plain torch, written from the model's mathematics.

Every stage takes and gives `Bounded` numbers: a float32 or bfloat16 value, and the distance that a
correct kernel may have from it (see `references.bounded` for how it follows from the formats).
"""
