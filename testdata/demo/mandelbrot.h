// The Mandelbrot set, drawn in ASCII.
#ifndef DEMO_MANDELBROT_H
#define DEMO_MANDELBROT_H

void draw_mandelbrot(double center_x, double center_y, double width);

#endif
