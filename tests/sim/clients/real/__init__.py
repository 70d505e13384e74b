"""The product's own clients in the simulated world, whole.

admin     The product's administrator
consumer  The product's consumer
producer  The product's producer
"""
