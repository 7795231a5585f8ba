// Frames of one video file, in order, as RGB of a fixed size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace vitrine {

enum class VideoFit {
  kCrop,       // scaled to cover the frame, the middle is kept
  kLetterbox,  // scaled to fit into the frame, black around
  kStretch,    // both sides scaled on their own
};

// Decodes through libavformat, libavcodec and libswscale (bicubic). Non-square pixels are made
// square; rotation in the metadata is not applied.
class VideoDecoder {
 public:
  // Throws IoError naming the file when it is missing, empty, no video, or of an unknown codec.
  VideoDecoder(const std::string& path, int64_t height, int64_t width, VideoFit fit);
  ~VideoDecoder();
  VideoDecoder(const VideoDecoder&) = delete;
  VideoDecoder& operator=(const VideoDecoder&) = delete;

  // Decodes the next frame, without scaling; false at the end of the file. Damaged packets are
  // counted and passed over.
  bool advance();
  // Of the frame that advance() reached: seconds since the first one.
  double time() const;
  // Whether something was lost between this frame and the one before, so that they are no
  // neighbours.
  bool after_gap() const;
  // Writes that frame, u8 [height, width, 3].
  void read(uint8_t* rgb);

  double fps() const;  // stated by the file; 0 when unknown
  // At the end of the file: why it must have been cut off, or "" when nothing says so. Most
  // Matroska files state no number of frames, so there only a torn last packet tells.
  std::string cut_off() const;
  int64_t decoded() const;
  int64_t decode_errors() const;  // packets refused by the decoder and frames marked damaged
  std::string codec() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vitrine
