// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/hostile_archives.h"

namespace ferry::test {

const std::vector<HostileArchive>& hostile_archives() {
  static const std::vector<HostileArchive> kRows = {
      {{{.path = "../outside", .content = "x"}}, "leads out of its folder"},
      {{{.path = "a/../../outside", .content = "x"}}, "leads out of its folder"},
      {{{.path = "/outside", .content = "x"}}, "is absolute"},
      {{{.path = "l", .symlink = "../outside"}}, "a link that leads out"},
      {{{.path = "l", .symlink = "/etc/passwd"}}, "a link that leads out"},
      {{{.path = "a/l", .symlink = "../../outside"}}, "a link that leads out"},
      {{{.path = "a/b/d", .symlink = "../.."}, {.path = "a/b/e", .symlink = "d/../outside"}},
       "a link that leads out"},
      {{{.path = "d", .symlink = "e"}, {.path = "d/f", .content = "x"}}, "written through 'd'"},
      {{{.path = "e", .folder = true}, {.path = "d", .symlink = "e"}, {.path = "d/f", .content = "x"}},
       "written through 'd'"},
      {{{.path = "l", .hardlink = "../outside"}}, "leads out of its folder"},
      {{{.path = "l", .hardlink = "/etc/passwd"}}, "is absolute"},
      {{{.path = "s", .symlink = "x"}, {.path = "l", .hardlink = "s"}}, "which is no file"},
      {{{.path = "l", .hardlink = "l"}}, "a link to itself"},
      {{{.path = "dev", .device = true}}, "is no file, folder or link"},
      {{{.path = "su", .content = "x", .mode = 04755}}, "set-user-ID"},
      {{{.path = "sg", .content = "x", .mode = 02755}}, "set-user-ID"},
      {{{.path = "f", .folder = true}, {.path = "f", .content = "x"}}, "is a folder already"},
      {{{.path = ".", .content = "x"}}, "names the whole folder"},
      {{{.path = "a\nb", .content = "x"}}, "control characters"},
  };
  return kRows;
}

}  // namespace ferry::test
