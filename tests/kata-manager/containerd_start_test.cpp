// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_start.h"

#include <gmock/gmock.h>

namespace ferry::kata {
namespace {

using testing::ElementsAre;

CommandWords words_of(std::string_view exec_start) {
  return command_words(exec_start).value_or(CommandWords{.words = {"(none)"}});
}

ContainerdStart start_of(std::string_view exec_start) {
  return containerd_start(words_of(exec_start));
}

std::string file_of(std::string_view exec_start) {
  return start_of(exec_start).configuration.value_or("(its own)");
}

TEST(ExecStart, IsReadAsSystemdReadsIt) {
  EXPECT_THAT(words_of("/usr/bin/containerd  --log-level\tdebug").words,
              ElementsAre("/usr/bin/containerd", "--log-level", "debug"));
  EXPECT_THAT(words_of(R"(/usr/bin/x "a b" 'c "d"' e\sf "\"" g"h i")").words,
              ElementsAre("/usr/bin/x", "a b", "c \"d\"", "e f", "\"", "gh i"));
  EXPECT_THAT(words_of("-!/usr/bin/x a ; /usr/bin/y b").words, ElementsAre("/usr/bin/x", "a"));
  EXPECT_THAT(words_of("@/usr/bin/x called a").words, ElementsAre("/usr/bin/x", "a"));
  EXPECT_THAT(words_of("/usr/bin/x a$$b 5%%").words, ElementsAre("/usr/bin/x", "a$b", "5%"));
  EXPECT_FALSE(words_of("/usr/bin/x a$$b").open);
  for (const char* open : {"/usr/bin/x $MORE", "/usr/bin/x ${MORE}", "/usr/bin/x %E/a", R"(/usr/bin/x \x41)"})
    EXPECT_TRUE(words_of(open).open) << open;
  for (const char* broken : {"", "  ", "-", "/usr/bin/x \"a", "/usr/bin/x 'a", "/usr/bin/x a\\", ";", "\"\""})
    EXPECT_FALSE(command_words(broken).has_value()) << broken;
}

TEST(ContainerdStart, SaysWhichFileItIsGiven) {
  EXPECT_EQ(file_of("/usr/bin/containerd"), "(its own)");
  for (const char* named :
       {"/usr/bin/containerd --config /srv/c.toml", "/usr/bin/containerd --config=/srv/c.toml",
        "/usr/bin/containerd -c /srv/c.toml -l debug", "/usr/bin/containerd -config=/srv/c.toml",
        "/usr/bin/containerd --config /old.toml --config srv/../srv/c.toml"})
    EXPECT_EQ(file_of(named), "/srv/c.toml") << named;
  constexpr const char* kOther = "/opt/bin/containerd --address /run/c.sock --root /srv/--config";
  const auto other = start_of(kOther);
  EXPECT_EQ(other.program.value_or(""), "/opt/bin/containerd");
  EXPECT_EQ(other.socket.value_or(""), "/run/c.sock");
  EXPECT_EQ(other.configuration, std::nullopt);
  EXPECT_FALSE(words_of(kOther).open);
}

TEST(ContainerdStart, GuessesNothing) {
  constexpr const char* kByVariable = "/usr/bin/containerd --config ${CONFIG}";
  EXPECT_TRUE(words_of(kByVariable).open);
  EXPECT_EQ(start_of(kByVariable).configuration, std::nullopt);
  EXPECT_EQ(file_of("/usr/bin/containerd --config /a.toml --config %E/b.toml"), "(its own)");
  EXPECT_EQ(file_of("/usr/bin/containerd --config"), "(its own)");
  const auto script = start_of("/usr/local/bin/start --config /a.toml");
  EXPECT_EQ(script.program, std::nullopt);
  EXPECT_EQ(script.configuration, std::nullopt);
}

}  // namespace
}  // namespace ferry::kata
