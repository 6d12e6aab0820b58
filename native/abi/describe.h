// The declaration tables as JSON, for hr_describe: what codegen, the docs and the tests are made from.
#pragma once

#include <string>

namespace headrace {

std::string describe();

} // namespace headrace
