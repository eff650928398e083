"""Imports large packages, which loads many shared libraries and creates many code objects."""

import asyncio
import decimal
import email.mime.text
import json
import sqlite3
import unittest.mock
import xml.etree.ElementTree

import numpy
import pandas
