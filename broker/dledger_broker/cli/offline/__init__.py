"""Commands about a stopped member's data folder.

events   `dledger inspect events`: what a member was doing before it ended
folders  The one data folder a command is about
inspect  `dledger inspect`: decode the files of a stopped member
repair   `dledger repair`
"""
