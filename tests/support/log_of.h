// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

namespace ferry::test {

/// What is said to whoever reads the log, for as long as this lives. Threads that log begin after it and end
/// before it.
class LogOf {
 public:
  LogOf() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", said_));
  }
  LogOf(const LogOf&) = delete;
  LogOf& operator=(const LogOf&) = delete;
  LogOf(LogOf&&) = delete;
  LogOf& operator=(LogOf&&) = delete;
  ~LogOf() { spdlog::set_default_logger(before_); }

  std::string text() const {
    std::string all;
    for (const auto& line : said_->last_formatted()) all += line;
    return all;
  }

 private:
  static constexpr std::size_t kLines = 1000;
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> said_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kLines);
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace ferry::test
