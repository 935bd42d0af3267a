/* Everything about single numbers: formats, conversions, arithmetic. See the three headers. */
#ifndef MONO_EMULATOR_NUMERIC_H
#define MONO_EMULATOR_NUMERIC_H

#include "arithmetic.h"
#include "convert.h"
#include "formats.h"

#endif
