// libav plumbing: open, decode, scale; errors are counted, never papered over.
#include "data/video_decoder.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace vitrine {
namespace {

std::string av_text(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof(text));
  return text;
}

struct Free {
  void operator()(AVFormatContext* p) const { avformat_close_input(&p); }
  void operator()(AVCodecContext* p) const { avcodec_free_context(&p); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
  void operator()(AVFrame* p) const { av_frame_free(&p); }
  void operator()(SwsContext* p) const { sws_freeContext(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// Where the scaled picture and the frame overlap, in one direction.
struct Placement {
  int scaled;    // size after scaling
  int from, to;  // first pixel in the scaled picture, and in the frame
  int count;
};
Placement place(double scaled, int64_t frame) {
  const int size = std::max(1, static_cast<int>(std::lround(scaled)));
  const int target = static_cast<int>(frame), spare = size - target;
  return {size, std::max(0, spare / 2), std::max(0, -spare / 2), std::min(size, target)};
}

// Ogg states no number of frames, but marks the last page (RFC 3533: flag 4 in byte 5 of "OggS",
// lengths of its segments from byte 27).
bool ogg_lacks_its_last_page(const std::string& path) {
  constexpr std::streamoff kLongestPage = 65307;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kLongestPage));
  const std::string tail{std::istreambuf_iterator<char>(file), {}};
  const size_t page = tail.rfind("OggS");
  if (page == std::string::npos || page + 27 > tail.size() || (tail[page + 5] & 4) == 0)
    return true;
  const size_t segments = static_cast<uint8_t>(tail[page + 26]);
  size_t end = page + 27 + segments;
  for (size_t i = 0; i < segments && page + 27 + i < tail.size(); ++i) {
    end += static_cast<uint8_t>(tail[page + 27 + i]);
  }
  return end > tail.size();
}

}  // namespace

struct VideoDecoder::State {
  std::string path;
  int64_t height, width;
  VideoFit fit;
  Owned<AVFormatContext> format;
  Owned<AVCodecContext> codec;
  Owned<AVPacket> packet{av_packet_alloc()};
  Owned<AVFrame> frame{av_frame_alloc()};
  Owned<SwsContext> scaler;
  AVStream* stream = nullptr;
  std::vector<uint8_t> scaled;
  int64_t packets = 0, decoded = 0, errors = 0, errors_before = 0, first_time = AV_NOPTS_VALUE;
  int64_t first_dts = AV_NOPTS_VALUE, last_dts = AV_NOPTS_VALUE;
  bool draining = false, gap = false, last_packet_torn = false;
  std::string read_error;

  [[noreturn]] void fail(const std::string& why) const { throw IoError(path + ": " + why); }
  void open();
  bool feed();
};

void VideoDecoder::State::open() {
  // The library's own lines would go to standard error; what matters is in the errors thrown here.
  static std::once_flag quiet;
  std::call_once(quiet, [] { av_log_set_level(AV_LOG_QUIET); });
  if (!std::filesystem::is_regular_file(path)) fail("expected a video file; none is there");
  if (std::filesystem::file_size(path) == 0) fail("the file is empty");
  AVFormatContext* raw = nullptr;
  int code = avformat_open_input(&raw, path.c_str(), nullptr, nullptr);
  if (code < 0) fail("not a video file, or cut off within its index (" + av_text(code) + ")");
  format.reset(raw);
  code = avformat_find_stream_info(raw, nullptr);
  if (code < 0) fail("no readable streams (" + av_text(code) + ")");
  const AVCodec* decoder = nullptr;
  const int index = av_find_best_stream(raw, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
  if (index == AVERROR_DECODER_NOT_FOUND) fail("no decoder for its video codec is installed");
  if (index < 0) fail("the file holds no video stream");
  stream = raw->streams[index];
  codec.reset(avcodec_alloc_context3(decoder));
  code = avcodec_parameters_to_context(codec.get(), stream->codecpar);
  if (code >= 0) code = avcodec_open2(codec.get(), decoder, nullptr);
  if (code < 0) fail("cannot start its decoder (" + av_text(code) + ")");
  if (codec->width < 1 || codec->height < 1) fail("its video stream has no picture size");
}

// Gives the decoder one packet; after the last it is told to drain. False when there is no more.
bool VideoDecoder::State::feed() {
  if (draining) return false;
  int code = 0;
  do {
    av_packet_unref(packet.get());
    code = av_read_frame(format.get(), packet.get());
  } while (code >= 0 && packet->stream_index != stream->index);
  if (code < 0) {
    if (code != AVERROR_EOF) read_error = av_text(code);
    if (read_error.empty() && format->pb != nullptr && format->pb->error < 0) {
      read_error = av_text(format->pb->error);
    }
    draining = true;
    avcodec_send_packet(codec.get(), nullptr);
    return true;
  }
  ++packets;
  if (packet->dts != AV_NOPTS_VALUE) {
    if (first_dts == AV_NOPTS_VALUE) first_dts = packet->dts;
    last_dts = packet->dts;
  }
  last_packet_torn = (packet->flags & AV_PKT_FLAG_CORRUPT) != 0;
  if (avcodec_send_packet(codec.get(), packet.get()) < 0 || last_packet_torn) ++errors;
  av_packet_unref(packet.get());
  return true;
}

VideoDecoder::VideoDecoder(const std::string& path, int64_t height, int64_t width, VideoFit fit)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->height = height;
  state_->width = width;
  state_->fit = fit;
  state_->open();
}

VideoDecoder::~VideoDecoder() = default;

bool VideoDecoder::advance() {
  State& s = *state_;
  while (true) {
    const int code = avcodec_receive_frame(s.codec.get(), s.frame.get());
    if (code == 0) {
      const bool damaged =
          (s.frame->flags & AV_FRAME_FLAG_CORRUPT) != 0 || s.frame->decode_error_flags != 0;
      if (damaged) {
        ++s.errors;
        continue;
      }
      s.gap = s.decoded > 0 && s.errors > s.errors_before;
      s.errors_before = s.errors;
      if (s.decoded == 0) s.first_time = s.frame->best_effort_timestamp;
      ++s.decoded;
      return true;
    }
    if (code == AVERROR_EOF) return false;
    if (code != AVERROR(EAGAIN)) ++s.errors;
    if (!s.feed() && code != AVERROR(EAGAIN)) return false;
  }
}

double VideoDecoder::time() const {
  const State& s = *state_;
  if (s.frame->best_effort_timestamp == AV_NOPTS_VALUE || s.first_time == AV_NOPTS_VALUE) {
    return fps() > 0 ? static_cast<double>(s.decoded - 1) / fps() : 0;
  }
  return static_cast<double>(s.frame->best_effort_timestamp - s.first_time) *
         av_q2d(s.stream->time_base);
}

void VideoDecoder::read(uint8_t* rgb) {
  State& s = *state_;
  const AVFrame& frame = *s.frame;
  const AVRational aspect = av_guess_sample_aspect_ratio(s.format.get(), s.stream, s.frame.get());
  const double shape = aspect.num > 0 && aspect.den > 0 ? av_q2d(aspect) : 1;
  const double from_width = frame.width * shape, from_height = frame.height;
  double x_scale = static_cast<double>(s.width) / from_width;
  double y_scale = static_cast<double>(s.height) / from_height;
  if (s.fit == VideoFit::kCrop) x_scale = y_scale = std::max(x_scale, y_scale);
  if (s.fit == VideoFit::kLetterbox) x_scale = y_scale = std::min(x_scale, y_scale);
  const Placement x = place(from_width * x_scale, s.width);
  const Placement y = place(from_height * y_scale, s.height);

  // Bit-exact scaling, so that one file gives one cache on every machine.
  s.scaler.reset(sws_getCachedContext(s.scaler.release(),
                                      frame.width,
                                      frame.height,
                                      static_cast<AVPixelFormat>(frame.format),
                                      x.scaled,
                                      y.scaled,
                                      AV_PIX_FMT_RGB24,
                                      SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT,
                                      nullptr,
                                      nullptr,
                                      nullptr));
  if (!s.scaler) s.fail("its pixel format can't be converted to RGB");
  // Rows padded to 64 bytes: the scaler's vector code may write past a row's end.
  const int stride = (3 * x.scaled + 63) / 64 * 64;
  s.scaled.resize(static_cast<size_t>(stride) * static_cast<size_t>(y.scaled) + 64);
  uint8_t* const planes[4] = {s.scaled.data(), nullptr, nullptr, nullptr};
  const int strides[4] = {stride, 0, 0, 0};
  sws_scale(s.scaler.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);

  if (s.fit == VideoFit::kLetterbox) std::fill_n(rgb, s.height * s.width * 3, uint8_t{0});
  for (int row = 0; row < y.count; ++row) {
    const uint8_t* const source =
        s.scaled.data() + static_cast<ptrdiff_t>(y.from + row) * stride + 3 * x.from;
    std::copy_n(source, 3 * x.count, rgb + ((y.to + row) * s.width + x.to) * 3);
  }
}

double VideoDecoder::fps() const {
  const AVRational rate =
      av_guess_frame_rate(state_->format.get(), state_->stream, state_->frame.get());
  return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
}

std::string VideoDecoder::cut_off() const {
  const State& s = *state_;
  if (!s.read_error.empty()) return "reading stopped with \"" + s.read_error + "\"";
  if (s.last_packet_torn) return "its last packet is not whole";
  if (std::string_view(s.format->iformat->name) == "ogg" && ogg_lacks_its_last_page(s.path)) {
    return "its last page is missing";
  }
  const int64_t stated = s.stream->nb_frames;
  // Fewer packets than stated are no sign alone: AVI counts dropped frames, which have a time only.
  if (s.packets >= stated || s.last_dts == AV_NOPTS_VALUE) return "";
  const double seconds =
      static_cast<double>(s.last_dts - s.first_dts) * av_q2d(s.stream->time_base);
  const double spanned = std::max(seconds * fps() + 1, static_cast<double>(s.packets));
  if (spanned > static_cast<double>(stated) - 0.5) return "";
  return "it holds " + std::to_string(s.packets) + " of " + std::to_string(stated) + " frames";
}

bool VideoDecoder::after_gap() const { return state_->gap; }
int64_t VideoDecoder::decoded() const { return state_->decoded; }
int64_t VideoDecoder::decode_errors() const { return state_->errors; }
std::string VideoDecoder::codec() const { return state_->codec->codec->name; }

}  // namespace vitrine
