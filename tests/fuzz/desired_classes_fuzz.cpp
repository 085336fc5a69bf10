// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/desired_classes.h"
#include "tests/fuzz/fuzz.h"

// A file that can be read is written and read again with the same values. A class file that is cut to the
// desired classes has these and no others.
void ferry::fuzz::one_input(std::string_view text) {
  const auto read = kata::read_desired_classes(ConfigText{.file = "classes.json", .text = std::string(text)});
  if (!read) {
    require(read.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
    return require(read.error().message.starts_with("classes.json"), "a refusal says where");
  }
  const std::string written = kata::desired_classes_text(*read);
  const auto again = kata::read_desired_classes(ConfigText{.file = "again.json", .text = written});
  require(again.has_value(), "what we write we can read");
  require(kata::desired_classes_text(*again) == written, "and write again");
  const auto file = kata::desired_class_file(*read);
  require(!file || file->classes.size() == read->classes.size(), "the classes are those that are wanted");
}
