// SPDX-License-Identifier: Apache-2.0
// Compiles fmt from its own headers: Debian has only a shared library of it (archives.cmake).
#include <locale>

#include <fmt/format-inl.h>

// Instantiations that fmt's headers leave to one file of the program, limited to those in use. After an
// upgrade of fmt the linker names missing ones.
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
