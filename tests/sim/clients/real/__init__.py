"""The product's own clients in the simulated world, whole.

admin     The product's administrator
consumer  The product's consumer
keeper    A compacted topic, kept by the product's producer, consumer and administrator
kept      What contradicts what the keeper was told
producer  The product's producer
users     Users, changed by the product's administrator
"""
