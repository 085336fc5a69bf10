// SPDX-License-Identifier: Apache-2.0
#include "common/lazy_library.h"

#include <cstddef>

#include <gmock/gmock.h>

#include "hostfs/kmod_library.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using testing::HasSubstr;

TEST(LazyLibrary, HasWhatItIsAskedFor) {
  auto library = test::must(LazyLibrary::load("libc.so.6", "never shown"));
  std::size_t (*length)(const char*) = nullptr;
  library.find("strlen", length);
  ASSERT_NE(length, nullptr);
  EXPECT_EQ(length("four"), 4U);
  EXPECT_TRUE(library.has_all("never shown"));
}

TEST(LazyLibrary, NamesWhatIsNotThere) {
  const auto none = LazyLibrary::load("libnobody-has-this.so.1", "install it");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, make_error_code(Errc::unsupported));
  EXPECT_THAT(none.error().message, HasSubstr("libnobody-has-this.so.1"));
  EXPECT_EQ(none.error().hint, "install it");

  auto library = test::must(LazyLibrary::load("libc.so.6", ""));
  void (*newer)() = nullptr;
  std::size_t (*length)(const char*) = nullptr;
  library.find("nobody_has_this", newer);
  library.find("strlen", length);
  EXPECT_EQ(newer, nullptr);
  const auto all = library.has_all("a newer one");
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().message, "libc.so.6 has no nobody_has_this");
  EXPECT_EQ(all.error().hint, "a newer one");
}

TEST(KmodLibrary, HasAllOfItsFunctions) {
  EXPECT_NE(test::must(KmodLibrary::get())->make, nullptr);
}

}  // namespace
}  // namespace ferry
