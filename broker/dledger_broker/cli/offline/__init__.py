"""Commands about a stopped member's data folder.

folders  The one data folder a command is about
inspect  `dledger inspect`: decode the files of a stopped member
repair   `dledger repair`
"""
