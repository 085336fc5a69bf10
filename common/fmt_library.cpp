// SPDX-License-Identifier: Apache-2.0
// fmt, compiled from its own headers: Debian has it as a shared library alone (archives.cmake).
#include <locale>

#include <fmt/format-inl.h>

// What the headers declare and leave to one file of the program, as far as it is used here. Where a later
// version wants another, the linker says which.
FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float);
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double);
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template std::locale locale_ref::get<std::locale>() const;
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
