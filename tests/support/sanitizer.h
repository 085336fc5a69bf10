// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry::test {

/// The address sanitizer is compiled in. It takes memory of its own, so that a limit of memory says nothing.
/// ABI: g++ defines __SANITIZE_ADDRESS__; clang++ 16 has __has_feature alone.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace ferry::test
