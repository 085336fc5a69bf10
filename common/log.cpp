// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <array>
#include <memory>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "common/text/text.h"
#include "common/text/visible_text.h"

namespace ferry {
namespace {

std::string escaped_for_json(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out.push_back(c);
    }
  }
  return visible_json(out);
}

// spdlog's pattern cannot escape a message, so the message has a flag of its own.
template <std::string (*escape)(std::string_view)>
class Message final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    const std::string text = escape({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Message>(); }
};

template <std::string (*escape)(std::string_view)>
std::unique_ptr<spdlog::pattern_formatter> formatter(const char* pattern) {
  auto out = std::make_unique<spdlog::pattern_formatter>();
  out->add_flag<Message<escape>>('*').set_pattern(pattern);
  return out;
}

}  // namespace

Result<> set_up_log(const std::string& level, LogFormat format) {
  static const std::array<std::string, 6> kLevels = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return fail(Errc::usage, "unknown log level '" + level + "'" + did_you_mean(level, kLevels),
                "levels are trace, debug, info, warn, error, off");
  }
  auto logger = std::make_shared<spdlog::logger>("ferry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (format == LogFormat::json) {
    logger->set_formatter(
        formatter<escaped_for_json>(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%*"})"));
  } else {
    logger->set_formatter(formatter<visible_line>("%Y-%m-%d %H:%M:%S.%e %-5l %*"));
  }
  logger->set_level(spdlog::level::from_str(level == "warn" ? "warning" : level));
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace ferry
