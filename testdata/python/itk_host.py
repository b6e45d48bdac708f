"""A host that shrinks an image with ITK's filter, again and again, as the package `itkwasm-downsample-wasi` runs it."""

import numpy
from itkwasm import Image, ImageType
from itkwasm_downsample_wasi import downsample_bin_shrink

SIZE = 512
image = Image(
    imageType=ImageType(dimension=2, componentType="uint8", pixelType="Scalar", components=1),
    size=[SIZE, SIZE],
    data=numpy.random.randint(0, 255, (SIZE, SIZE), dtype=numpy.uint8),
    direction=numpy.eye(2),
    origin=[0.0, 0.0],
    spacing=[1.0, 1.0],
)
while True:
    downsample_bin_shrink(image, shrink_factors=[2, 2])
