#pragma once

#include <cmath>
