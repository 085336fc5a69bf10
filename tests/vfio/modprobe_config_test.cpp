// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"
#include "vfio/pci/kernel_options.h"

namespace ferry::vfio {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> parsed(std::string_view text) {
  std::vector<std::string> out;
  for (const ModprobeLine& line : parse_modprobe_config(text)) {
    std::string joined = line.where + ":";
    for (const std::string& word : line.words) joined += " " + word;
    out.push_back(joined);
  }
  return out;
}

TEST(ModprobeConfig, IsReadByLine) {
  EXPECT_THAT(parsed("# a comment\n\n  options\tvfio-pci  ids=1:2\nblacklist nouveau"),
              ElementsAre("3: options vfio_pci ids=1:2", "4: blacklist nouveau"));
  EXPECT_THAT(parsed("options vfio-pci \\\n  a=1 \\\n  b=2\nsoftdep x pre: y\n"),
              ElementsAre("1: options vfio_pci a=1 b=2", "4: softdep x pre: y"));
}

TEST(ModprobeConfig, GivesSomeListOfAnyText) {
  EXPECT_THAT(parsed(""), IsEmpty());
  EXPECT_THAT(parsed("\n\n \t\n#"), IsEmpty());
  EXPECT_THAT(parsed("\\"), IsEmpty());
  EXPECT_THAT(parsed("options \\"), ElementsAre("1: options"));
  EXPECT_THAT(parsed("\\\n\\\n\\\n"), IsEmpty());
}

TEST(ModprobeConfig, HidesALaterFileOfTheSameNameAndReportsWhatItCouldNotRead) {
  const test::ScratchDirectory root;
  root.file("etc/modprobe.d/a.conf", "blacklist one\n");
  root.file("etc/modprobe.d/readme", "blacklist no\n");
  root.file("lib/modprobe.d/a.conf", "blacklist hidden\n");
  root.file("lib/modprobe.d/b.conf", "blacklist two\n");
  root.file("usr/lib/modprobe.d/d.conf", "blacklist three\n");
  root.file("usr/local/lib/modprobe.d/e.conf", "blacklist four\n");
  root.directory("lib/modprobe.d/c.conf");
  root.file("run/modprobe.d", "no directory");
  const ModprobeConfig config = read_modprobe_config(HostFs(root.path()));
  std::vector<std::string> wheres;
  wheres.reserve(config.lines.size());
  for (const ModprobeLine& line : config.lines) wheres.push_back(line.where);
  EXPECT_THAT(wheres, ElementsAre("/etc/modprobe.d/a.conf:1", "/usr/local/lib/modprobe.d/e.conf:1",
                                  "/usr/lib/modprobe.d/d.conf:1", "/lib/modprobe.d/b.conf:1"));
  EXPECT_THAT(config.troubles, SizeIs(2));
}

TEST(ModprobeConfig, SaysWhichLineKeepsAModuleFromBeingLoaded) {
  const test::ScratchDirectory root;
  const auto hint = [&](const char* text) {
    root.file("etc/modprobe.d/a.conf", text);
    return hint_of_blocked_module(HostFs(root.path()), "vfio_pci");
  };
  EXPECT_EQ(hint("# no VMs here\ninstall vfio-pci /bin/false\n"),
            "/etc/modprobe.d/a.conf:2 runs /bin/false in place of loading vfio_pci: take that line out, also "
            "of the "
            "initramfs");
  EXPECT_EQ(hint("install vfio true\n"),
            "/etc/modprobe.d/a.conf:1 runs true in place of loading vfio: take that line out, also of the "
            "initramfs");
  EXPECT_EQ(hint("install nouveau /bin/false\n"), "");
  EXPECT_EQ(hint("install vfio-pci /sbin/modprobe --ignore-install vfio-pci\nblacklist vfio_pci\n"), "");
}

}  // namespace
}  // namespace ferry::vfio
