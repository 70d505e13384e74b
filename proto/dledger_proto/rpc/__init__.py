"""What travels over gRPC: channels, raw methods, frames, errors as status.

aio     Channels and servers of grpc.aio, whose wake-ups never block
frames  Frames of the native streams: append, answer, fetch (D12)
raw     Raw gRPC methods: byte strings in, byte strings out, registered by hand (D12)
stall   Readers that stop reading: how long one message of a stream waits to be taken
status  Errors as gRPC status and back: code and hint travel in trailing metadata
views   Views of a received buffer, and what they keep in memory
"""
