"""What travels over gRPC: channels, raw methods, frames, errors as status.

aio     Channels and servers of grpc.aio, whose wake-ups never block
frames  Frames of the native streams: append, answer, fetch (D12)
raw     Raw gRPC methods: byte strings in, byte strings out, registered by hand (D12)
stall   The limit for readers that stop reading a stream
status  Errors as gRPC status and back: code and hint travel in trailing metadata
views   What views of a received buffer keep in memory
"""
